"""The three stages of a flush: observe, reflect, drop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prism.core import ErrorInfo
from prism.memory.observational._ledger import Ledger, earlier_marker
from prism.memory.observational._records import (
    Observation,
    Reflection,
    drops_record,
    make_observation,
    make_reflection,
    observations_record,
    reflections_record,
    supersession_record,
)
from prism.memory.observational._runtime.hooks import HookFailed, WorkerOutput
from prism.memory.observational._runtime.results import NOT_DUE, WorkerResult
from prism.memory.observational._runtime.roles import Hired
from prism.memory.observational._runtime.stage import Branch, Stage
from prism.memory.observational._sources import source_tokens
from prism.memory.observational._workers.dropper import (
    DropperDesk,
    backstop_drops,
    dropper_prompt,
    max_drops,
)
from prism.memory.observational._workers.engine import Conversation
from prism.memory.observational._workers.memory_view import (
    chunk_budget,
    known_memory,
    prior_budget,
)
from prism.memory.observational._workers.observer import (
    Chunk,
    ObserverDesk,
    next_chunk,
    observer_prompt,
)
from prism.memory.observational._workers.prompts import (
    DROPPER_PROMPT,
    OBSERVER_PROMPT,
    REFLECTOR_PROMPT,
)
from prism.memory.observational._workers.reflector import ReflectorDesk, reflector_prompt


class ObserveStage(Stage):
    """From new messages to observations, the oldest first, until little is left."""

    worker = "observer"

    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args, **fields)  # type: ignore[arg-type]
        self.covers: str | None = None

    async def run(self) -> WorkerResult:
        """Observe what is due, a chunk at a time."""
        office = self.office
        result = NOT_DUE
        hired: Hired | None = None
        try:
            for _ in range(self.settings.max_chunks_per_flush):
                branch = await office.branch()
                waiting = source_tokens(branch.path, after=branch.ledger.observed.place)
                due = 1 if self.force else self.settings.observe_after_tokens
                if waiting < due:
                    break
                if hired is None:
                    hired = await self.hired()
                chunk = next_chunk(
                    branch.path,
                    branch.ledger,
                    chunk_budget(self.settings, hired.model),
                    office.zone,
                )
                if chunk is None:
                    break
                result = await self._one(hired, branch, chunk)
                if result.status in {"failed", "skipped"} or result.error is not None:
                    break
        finally:
            if hired is not None:
                await hired.dismiss()
        return self._all(result)

    def _all(self, last: WorkerResult) -> WorkerResult:
        """The result of all chunks: what was recorded counts, however the last one ended."""
        status = last.status
        if status == "empty" and self.tally.counts.get("recorded"):
            status = "recorded"
        return self.result(status, covers_up_to=self.covers, error=last.error, reason=last.reason)

    async def _one(self, hired: Hired, branch: Branch, chunk: Chunk) -> WorkerResult:
        async def job() -> WorkerResult:
            if not chunk.shown_ids:  # nothing in it can be shown, so nothing can be noted
                return await self._store((), chunk, chunk.last_id, None)
            return await self._observe(hired, branch.ledger, chunk)

        return await self.watched(job)

    async def _observe(self, hired: Hired, ledger: Ledger, chunk: Chunk) -> WorkerResult:
        office = self.office
        desk = ObserverDesk(chunk, ledger, office.zone, office.redactor.redact_text)
        known = known_memory(ledger, prior_budget(self.settings, hired.model), tiers=False)
        ended = await self.work(
            hired,
            system=OBSERVER_PROMPT,
            prompt=observer_prompt(chunk, known, office.now()),
            tool=desk.tool,
            nudge=desk.nudge,
            source_entry_ids=chunk.shown_ids,
        )
        self.tally.add(rejected=desk.rejected, duplicates=desk.duplicates)
        covers = desk.covers(ended)
        if covers is None:
            return self.result("failed", error=self.failure(ended, desk.rejected))
        output = await self.reviewed(
            WorkerOutput(
                worker=self.worker,
                session_id=office.session.id,
                observations=desk.in_order(),
            )
        )
        found = self._rebuilt(output.observations, ledger, chunk)
        return await self._store(found, chunk, covers, ended.error)

    def _rebuilt(
        self, observations: Iterable[Observation], ledger: Ledger, chunk: Chunk
    ) -> tuple[Observation, ...]:
        """Observations with their ids, also when a hook changed what they say."""
        order = {entry.id: at for at, entry in enumerate(chunk.entries)}
        taken = dict(ledger.observations_by_id)
        found: list[Observation] = []
        for one in observations:
            if any(key not in order for key in one.source_entry_ids):
                raise HookFailed(_foreign("an observation with a source that was not shown"))
            made = make_observation(
                content=self.office.redactor.redact_text(one.content),
                timestamp=one.timestamp,
                relevance=one.relevance,
                source_entry_ids=sorted(one.source_entry_ids, key=order.__getitem__),
                taken=taken,
            )
            if made.id not in taken:
                taken[made.id] = made
                found.append(made)
        return tuple(found)

    async def _store(
        self,
        observations: tuple[Observation, ...],
        chunk: Chunk,
        covers: str,
        error: ErrorInfo | None,
    ) -> WorkerResult:
        await self.office.record(
            observations_record(observations, covers), (chunk.first_id, chunk.last_id)
        )
        self.covers = covers
        self.tally.add(recorded=len(observations))
        status = "recorded" if observations else "empty"
        return self.result(status, covers_up_to=covers, error=error)


def _foreign(what: str) -> ErrorInfo:
    return ErrorInfo(message=f"A memory hook gave {what}.", code="hook_failed")


class ReflectStage(Stage):
    """From observations to lasting facts."""

    worker = "reflector"

    async def run(self) -> WorkerResult:
        """Reflect, if that is due."""
        branch = await self.office.branch()
        if not self._due(branch):
            return NOT_DUE
        hired = await self.hired()
        try:
            return await self.watched(lambda: self._reflect(hired, branch))
        finally:
            await hired.dismiss()

    def _due(self, branch: Branch) -> bool:
        ledger = branch.ledger
        if ledger.observed.entry_id is None:
            return False
        waiting = source_tokens(branch.path, after=ledger.reflected.place)
        if waiting < self.settings.reflect_after_tokens and not self.force:
            return False
        active = {one.id for one in ledger.active_observations}
        return any(
            cover is not None and cover > ledger.reflected.place
            and any(one.id in active for one in record.observations)
            for record, cover in zip(ledger.records, ledger.covers, strict=True)
        )  # fmt: skip

    async def _reflect(self, hired: Hired, branch: Branch) -> WorkerResult:
        office, ledger = self.office, branch.ledger
        desk = ReflectorDesk(ledger, office.now(), office.redactor.redact_text)
        known = known_memory(ledger, prior_budget(self.settings, hired.model), tiers=True)
        ended = await self.work(
            hired,
            system=REFLECTOR_PROMPT,
            prompt=reflector_prompt(known, office.now()),
            tool=desk.tool,
            nudge=desk.nudge,
        )
        self.tally.add(rejected=desk.rejected, duplicates=desk.duplicates)
        found = bool(desk.accepted or desk.obsolete)
        if not found and (ended.error is not None or desk.rejected or not desk.clean):
            return self.result("failed", error=self.failure(ended, desk.rejected))
        output = await self.reviewed(
            WorkerOutput(
                worker=self.worker,
                session_id=office.session.id,
                reflections=tuple(desk.accepted),
                superseded={new: tuple(old) for new, old in desk.superseded.items()},
                obsolete=tuple(desk.obsolete),
            )
        )
        return await self._store(output, branch, ended)

    async def _store(
        self, output: WorkerOutput, branch: Branch, ended: Conversation
    ) -> WorkerResult:
        ledger = branch.ledger
        observed = ledger.observed.entry_id or ""
        covers = observed
        if ended.error is not None:  # the rest of the observations has not been looked at
            covers = ledger.reflected.entry_id or branch.path[0].id
        reflections, renamed = self._rebuilt(output.reflections, ledger)
        await self.office.record(reflections_record(reflections, covers), (observed,))
        gone = 0
        for new, old in self._supersessions(output, renamed, ledger).items():
            await self.office.record(
                supersession_record(old, covers, by_reflection_id=new or None), (observed,)
            )
            gone += len(old)
        self.tally.add(recorded=len(reflections), superseded=gone)
        status = "recorded" if reflections or gone else "empty"
        return self.result(status, covers_up_to=covers, error=ended.error)

    def _rebuilt(
        self, reflections: Iterable[Reflection], ledger: Ledger
    ) -> tuple[tuple[Reflection, ...], Mapping[str, str]]:
        """Reflections with their ids, and by which id each was known before."""
        active = {one.id for one in ledger.active_observations}
        taken = dict(ledger.reflections_by_id)
        found: list[Reflection] = []
        renamed: dict[str, str] = {}
        for one in reflections:
            if any(key not in active for key in one.supporting_observation_ids):
                raise HookFailed(_foreign("a reflection on observations that are not in use"))
            made = make_reflection(
                content=self.office.redactor.redact_text(one.content),
                supporting_observation_ids=one.supporting_observation_ids,
                timestamp=one.timestamp or self.office.now(),
                taken=taken,
            )
            taken[made.id] = made
            renamed[one.id] = made.id
            found.append(made)
        return tuple(found), renamed

    def _supersessions(
        self, output: WorkerOutput, renamed: Mapping[str, str], ledger: Ledger
    ) -> dict[str, list[str]]:
        """What goes out of use, by what stands for it; empty for nothing."""
        active = {one.id for one in ledger.active_reflections}
        wanted = {renamed[new]: old for new, old in output.superseded.items() if new in renamed}
        wanted[""] = output.obsolete
        return {
            new: kept
            for new, old in wanted.items()
            if (kept := [key for key in old if key in active])
        }


class DropStage(Stage):
    """Brings the pool of observations down, by a model's proposal and by rule.

    Args:
        reflected: What the reflector did in the same flush.
    """

    worker = "dropper"

    reflected: WorkerResult = NOT_DUE

    async def run(self) -> WorkerResult:
        """Drop, if that is due."""
        branch = await self.office.branch()
        if branch.ledger.observed.entry_id is None:
            return NOT_DUE
        result = NOT_DUE
        if self._due(branch.ledger):
            hired = await self.hired()
            try:
                result = await self.watched(lambda: self._drop(hired, branch))
            finally:
                await hired.dismiss()
            if result.status in {"recorded", "empty"}:
                self.office.dropper_saw = branch.ledger.observed.entry_id
        if self.reflected.status == "failed" or result.status == "skipped":
            return result
        return await self._backstop(result)

    def _due(self, ledger: Ledger) -> bool:
        settings = self.settings
        if ledger.pool_tokens <= settings.observations_pool_target_tokens:
            return False
        if self.reflected.counts.get("recorded"):
            return True
        over = ledger.pool_tokens >= settings.observations_pool_max_tokens
        news = ledger.observed.entry_id != self.office.dropper_saw
        return bool(ledger.active_reflections) and ((over and news) or self.force)

    async def _drop(self, hired: Hired, branch: Branch) -> WorkerResult:
        ledger, settings = branch.ledger, self.settings
        target = settings.observations_pool_target_tokens
        pool = ledger.pool_tokens
        most = max_drops(pool, target, len(ledger.active_observations))
        desk = DropperDesk(ledger, most)
        known = known_memory(ledger, prior_budget(settings, hired.model), tiers=True)
        ended = await self.work(
            hired,
            system=DROPPER_PROMPT,
            prompt=dropper_prompt(
                known, pool=pool, target=target, most=most, now=self.office.now()
            ),
            tool=desk.tool,
            nudge=desk.nudge,
        )
        self.tally.add(rejected=desk.rejected, duplicates=desk.duplicates)
        if not desk.proposed:
            if ended.error is None and desk.said_nothing and not desk.rejected:
                return self.result("empty")
            return self.result("failed", error=self.failure(ended, desk.rejected))
        output = await self.reviewed(
            WorkerOutput(
                worker=self.worker,
                session_id=self.office.session.id,
                dropped_ids=desk.selected(),
            )
        )
        active = {one.id for one in ledger.active_observations}
        gone = tuple(key for key in output.dropped_ids if key in active)
        return await self._store(gone, ledger, ended.error)

    async def _store(
        self, gone: tuple[str, ...], ledger: Ledger, error: ErrorInfo | None
    ) -> WorkerResult:
        if not gone:
            return self.result("empty", error=error)
        covers = earlier_marker(
            ledger.places, ledger.observed.entry_id, self.reflected.covers_up_to
        )
        observed = ledger.observed.entry_id or ""
        await self.office.record(drops_record(gone, covers or observed), (observed,))
        self.tally.add(recorded=len(gone))
        return self.result("recorded", covers_up_to=covers, error=error)

    async def _backstop(self, so_far: WorkerResult) -> WorkerResult:
        """By rule, when no model has brought the pool below its maximum."""
        branch = await self.office.branch()
        ledger = branch.ledger
        if ledger.pool_tokens < self.settings.observations_pool_max_tokens:
            return so_far
        gone = backstop_drops(ledger, self.settings.observations_pool_target_tokens)
        if not gone:
            return so_far

        async def job() -> WorkerResult:
            self.tally.add(backstop=len(gone))
            return await self._store(gone, ledger, None)

        result = await self.watched(job)
        return result if so_far.error is None else self.result(
            result.status, covers_up_to=result.covers_up_to, error=so_far.error
        )  # fmt: skip
