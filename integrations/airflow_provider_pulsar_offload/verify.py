"""An operator that verifies a tier: the task fails for what is wrong, and its result is what was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_pulsar_offload.hook import DEFAULT_CONNECTION, OffloadHook
from offload_core.maintenance.verify import Severity, Verification, VerifiedObjects

FAIL_ON = ("warning", "error", "never")


class VerifyTierOperator(BaseOperator):  # type: ignore[misc]  # untyped here
    """Verifies what lies in a tier, as `offload verify` does; the summary is the task's result.

    Findings are logged. The task fails without another try if there are some as bad as `fail_on`, and with one if
    something could not be verified.

    Args:
        deep: verify every byte.
        with_records: compare with the records that the connection names.
        prefix: only objects whose keys begin so.
        state: with `deep`, a file by which what was sound the last time is passed over.
        fail_on: `warning`, `error` or `never`.
        findings_shown: so many findings are logged, at most.
        offload_conn_id: the connection.
    """

    template_fields: Sequence[str] = ("prefix", "state", "offload_conn_id")

    def __init__(
        self,
        *,
        deep: bool = False,
        with_records: bool = False,
        prefix: str = "",
        state: str | None = None,
        fail_on: str = "warning",
        findings_shown: int = 100,
        offload_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if fail_on not in FAIL_ON:
            raise ValueError(f"fail_on is one of {', '.join(FAIL_ON)}")
        if state is not None and not deep:
            raise ValueError("state is of use with deep only")
        self.deep = deep
        self.with_records = with_records
        self.prefix = prefix
        self.state = state
        self.fail_on = fail_on
        self.findings_shown = findings_shown
        self.offload_conn_id = offload_conn_id

    def execute(self, context: Any) -> dict[str, Any]:
        """Verify; what was looked at."""
        hook = OffloadHook(self.offload_conn_id)
        with ExitStack() as stack:
            tier = stack.enter_context(hook.open_tier())
            state = None
            if self.state is not None:
                state = stack.enter_context(VerifiedObjects(self.state, tier.store.describe().location))
            verification = Verification(
                tier.store,
                prefix=self.prefix,
                records=hook.open_records if self.with_records else None,
                deep=self.deep,
                state=state,
            )
            for number, finding in enumerate(verification):
                if number < self.findings_shown:
                    self.log.warning("%s", finding.to_json())
        summary = verification.summary
        for error in summary.failures:
            self.log.error("not verified: %s", error)
        wrong, doubtful = summary.count(Severity.ERROR), summary.count(Severity.WARNING)
        if summary.failed:
            raise RuntimeError(f"{summary.failed} objects could not be verified")
        if (wrong and self.fail_on != "never") or (doubtful and self.fail_on == "warning"):
            raise AirflowFailException(f"{wrong} errors, {doubtful} warnings: {summary.to_json()['codes']}")
        return summary.to_json()
