"""One page about a tier that works without a network; the same page, without data, is what the service shows live."""

from offload_core.report.gathering import MOST_FINDINGS, TOP_TOPICS, gather
from offload_core.report.page import Page, live_page, report_page

__all__ = ["MOST_FINDINGS", "TOP_TOPICS", "Page", "gather", "live_page", "report_page"]
