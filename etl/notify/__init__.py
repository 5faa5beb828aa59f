"""Who is told: callbacks, posts, mails and the webhook. The only door to httpx, smtplib and jinja2."""
