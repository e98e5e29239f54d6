"""Every storage keeps the contract of AuditTrail."""

from wtb.testing.audit import AuditTrailContract


class TestAuditTrail(AuditTrailContract): ...
