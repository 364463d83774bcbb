"""What the worker releases from the vault: rounded scores, ranks and receipts; also exposure and fingerprints."""
