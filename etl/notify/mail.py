"""Mails: one letter, as text and as HTML, over the SMTP server in `settings.mail`.

Tries once and never raises for what a mail server does: an outage there fails and delays nothing (P22). A text cannot
add headers. Called for notices.
"""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import SplitResult, unquote, urlsplit

from etl.config.noticing import Mail
from etl.notify import answer
from etl.notify.answer import Answer

#: seconds for each step.
TIMEOUT = 10.0
#: characters of a subject.
LONGEST = 150
_PORTS = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What is mailed to whom; the same `key` gives the same Message-ID, so that a second copy can be told as one."""

    to: tuple[str, ...]
    subject: str
    text: str
    html: str = ""
    key: str


def send(mail: Mail, letter: Letter) -> Answer:
    """Send one letter over the operator's server, and give what came of it."""
    try:
        message = _message(mail, letter)
        parts = urlsplit(mail.smtp.get_secret_value())
        with _connected(parts) as server:
            refused = server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        return _answer(max(code for code, _ in error.recipients.values()), "no recipient is accepted")
    except smtplib.SMTPAuthenticationError as error:  # an expired password refuses us and not the letter
        said = f"not mailed: the mail server answers {error.smtp_code} to user and password of mail.smtp"
        return Answer(state=answer.WAITING, said=said, target="mail")
    except smtplib.SMTPResponseException as error:
        return _answer(error.smtp_code, f"the mail server answers {error.smtp_code}")
    except ValueError as error:  # its words may hold a part of the password
        said = (
            f"not mailed: {type(error).__name__}: see mail.smtp and mail.from in settings.yaml (ASCII only)"
        )
        return Answer(state=answer.WAITING, said=said, target="mail")
    except (smtplib.SMTPException, OSError) as error:
        return Answer(
            state=answer.WAITING, said=f"not mailed: {type(error).__name__}: {error}", target="mail"
        )
    left = f"; not accepted for {', '.join(refused)}" if refused else ""
    return Answer(state=answer.TOLD, said=f"mailed to {', '.join(letter.to)}{left}", target="mail")


def _message(mail: Mail, letter: Letter) -> EmailMessage:
    # a subject stays on one line
    message = EmailMessage(policy=policy.default.clone(max_line_length=LONGEST + 50))
    # one line each: what a file or an operator is called must not begin another header
    message["Subject"] = _sendable(" ".join(letter.subject.split())[:LONGEST])
    message["From"] = mail.sender
    message["To"] = ", ".join(letter.to)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{letter.key.replace('/', '.')}@rq-etl>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_sendable(letter.text.rstrip("\n")) + "\n")
    if letter.html:
        message.add_alternative(_sendable(letter.html), subtype="html")
    return message


def _sendable(text: str) -> str:
    """Give a text without what no mail can carry: halves of characters, from names that are not UTF-8."""
    return text.encode(errors="replace").decode()


def _connected(parts: SplitResult) -> smtplib.SMTP:
    """Connect, encrypt where the server can, and log in where the URL has a user."""
    host, port = parts.hostname or "localhost", parts.port or _PORTS.get(parts.scheme, 25)
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, port, timeout=TIMEOUT, context=ssl.create_default_context()
        )
    else:
        server = smtplib.SMTP(host, port, timeout=TIMEOUT)
    try:
        _introduce(server, parts)
    except BaseException:
        server.close()
        raise
    return server


def _introduce(server: smtplib.SMTP, parts: SplitResult) -> None:
    server.ehlo()
    if parts.scheme != "smtps" and server.has_extn("starttls"):
        server.starttls(context=ssl.create_default_context())
        server.ehlo()
    elif parts.scheme != "smtps" and parts.username:
        raise smtplib.SMTPNotSupportedError("no password is sent to a server that cannot encrypt")
    if parts.username:
        server.login(unquote(parts.username), unquote(parts.password or ""))


def _answer(code: int, said: str) -> Answer:
    """Tell what is refused for good from what may be accepted later."""
    return Answer(state=answer.FAILED if code >= 500 else answer.WAITING, said=said, target="mail")
