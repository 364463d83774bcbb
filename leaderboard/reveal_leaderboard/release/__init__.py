"""What may leave the vault: rounded figures, ranks, exposure, fingerprints, receipts."""
