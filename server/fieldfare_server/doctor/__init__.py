"""What is wrong with a deployment, seen from inside, and how to mend it. Reads only, but for one question that
only doing can answer (`strangers`).

One kind of thing a file; each check gives findings, good ones too, so that what was looked at can be seen.
"""

from __future__ import annotations

from fieldfare_server.doctor.finding import Finding, fault, fine, skipped, warning

__all__ = ["Finding", "fault", "fine", "skipped", "warning"]
