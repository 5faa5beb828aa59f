"""Digesting: when somebody is told, and of what: a new cause at once, more of the same once in a window.

Decides by the memory alone, so that a restart begins no window anew. A notice is taken down together with what it
tells, and only then spooled. Sends nothing. Called by the watch.
"""

from __future__ import annotations

from dataclasses import dataclass

from etl.app import App
from etl.files import news, spool
from etl.files.news import News
from etl.files.noticed import Noticed, Pending, Told
from etl.model import Place, Stage, Urgency
from etl.notify import digest
from etl.notify.digest import Cause, Digest, Line
from etl.services import failures
from etl.stages import notices
from etl.stages.notices import Audience, Notice

#: seconds for which what comes together is gathered.
GATHER = 2.0
#: notices sent at once in one window; what comes then waits for the digest.
AT_ONCE = 3
#: seconds for which nothing of a cause may be left before it counts as recovered.
SETTLED = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """When the next notice is wanted, and whether because of something new."""

    at: float
    at_once: bool


class Digests:
    """Writes notices for every audience."""

    def __init__(self, app: App, memory: Noticed) -> None:
        self._app = app
        self._config = app.config
        self._memory = memory
        self._window = app.config.settings.notices.window
        self._audiences = notices.audiences(app.config)
        #: whether all that lay there at the start has been seen.
        self._begun = False

    def spool(self) -> None:
        """Spool what was taken down and may not be in the spool yet: whoever did may have died."""
        for number, items in self._memory.unspooled():
            for facts in items["spool"]:
                spool.put(self._app.layout, spool.Item(**facts))
            told = set(items["news"])
            for one in news.waiting(self._app.layout):
                if one.name in told:
                    news.remove(self._app.layout, one)
            self._memory.spooled(number)

    def turn(self, now: float, *, complete: bool) -> None:
        """Tell every audience what it is time to tell."""
        self._begun = self._begun or complete
        if not self._begun:
            return
        waiting = list(news.waiting(self._app.layout))
        for audience in self._audiences:
            lines = [one for one in waiting if self._hears(audience, one.pipeline)]
            due = self._due(audience, lines, now)
            if due is not None and due.at <= now:
                self._tell(audience, lines, at_once=due.at_once, now=now)
        self.spool()

    def _hears(self, audience: Audience, pipeline: str) -> bool:
        return pipeline in audience.pipelines or (audience.default and pipeline not in self._config.pipelines)

    # --- when

    def _due(self, audience: Audience, lines: list[News], now: float) -> _Due | None:
        pending = self._memory.pending(audience.pipelines, now - SETTLED)
        last, at_once = self._memory.mailed(audience.key, now - self._window)
        last = last if last <= now else 0.0  # a clock that was set back holds nothing up
        dues = [
            *self._new(pending, lines, last, may=at_once < AT_ONCE),
            *self._more(pending, lines, last),
        ]
        return min(dues, key=lambda one: (one.at, one.at_once), default=None)

    def _new(self, pending: Pending, lines: list[News], last: float, *, may: bool) -> list[_Due]:
        """Tell causes nobody knows of at once, but not one after the other without end."""
        moments = [one.at for one in lines if one.urgency is Urgency.NOW]
        moments += [pending.fresh] if pending.fresh else []
        at = [one + GATHER for one in moments]
        return [_Due(at=one if may else max(one, last + self._window), at_once=may) for one in at]

    def _more(self, pending: Pending, lines: list[News], last: float) -> list[_Due]:
        """Tell more of the same once in a window, and what is no failure within it."""
        window = self._window
        at = [max(pending.known + GATHER, last + window)] if pending.known else []
        at += [max(one.at, last) + window for one in lines]
        at += [max(pending.recovered, last) + window] if pending.recovered else []
        return [_Due(at=one, at_once=False) for one in at]

    # --- what

    def _tell(self, audience: Audience, lines: list[News], *, at_once: bool, now: float) -> None:
        number = self._memory.next_number()
        recovered = self._memory.recovered(audience.pipelines, now - SETTLED)
        one = self._digest(audience, lines, recovered, at_once=at_once)
        title = digest.subject(one)
        rendered = notices.rendered(self._config, one.kind, title, now, digest=one, lead=digest.lead(one))
        key = f"digest/{self._app.data_id}/{self._memory.token}/{number}"
        ready = Notice(kind=one.kind, subject=title, rendered=rendered, key=key)
        items = notices.items(self._config, ready, audience.to, now)
        mail = {
            "number": number,
            "audience": audience.key,
            "at": now,
            "at_once": int(at_once),
            "items": {"spool": [spool.facts(item) for item in items], "news": [line.name for line in lines]},
        }
        self._memory.tell(mail, audience.pipelines, [word for word, _, _ in recovered])
        self.spool()

    def _digest(
        self, audience: Audience, lines: list[News], recovered: list[tuple[str, str, str]], *, at_once: bool
    ) -> Digest:
        pipelines = audience.pipelines
        causes = tuple(map(self._cause, self._memory.failures(pipelines)))
        sums = self._memory.sums(pipelines)
        known = "digest" if causes or lines else "recovered"
        return Digest(
            kind="failure" if at_once else known,
            causes=causes,
            news=tuple(map(_line, lines)),
            recovered=tuple(_over(place, cause) for _, place, cause in recovered),
            files=sums.files,
            whole=sums.whole,
            held=sums.held,
            of=sums.of,
            again=self._memory.told_again(pipelines),
            left=self._memory.left(pipelines),
            window=digest.spoken(self._window),
        )

    def _cause(self, told: Told) -> Cause:
        place = _place(told.place)
        return Cause(
            pipeline=place.pipeline,
            place=told.place,
            location=place.location,
            cause=told.cause,
            word=told.word,
            new=told.new,
            total=told.total,
            first=digest.moment(told.first),
            last=digest.moment(told.last),
            # what is gone by now needs nobody
            urgency=digest.worst(told.urgency.split(",")) if told.total else Urgency.INFO,
            held=told.held,
            sample=failures.sample(self._app, place, told.sample) if told.total else None,
            about=notices.about(self._config, place.pipeline),
            commands=notices.commands(self._config, place.pipeline, told.word) if told.total else (),
        )


def _line(one: News) -> Line:
    return Line(
        pipeline=failures.shown(one.pipeline),
        kind=failures.shown(one.kind),
        text=failures.shown(one.text),
        next=failures.shown(one.next),
        urgency=one.urgency,
    )


def _over(place: str, cause: str) -> Line:
    pipeline, _, where = place.partition("/")
    return Line(pipeline=pipeline, kind=where, text=cause)


def _place(text: str) -> Place:
    pipeline, stage, location = [*text.split("/"), ""][:3]
    return Place(pipeline=pipeline, stage=Stage(stage), location=location)
