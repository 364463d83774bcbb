"""Releases from the vault: rounded scores, ranks, exposure, fingerprints, receipts."""
