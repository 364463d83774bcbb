"""Kill tests: servers, workers and their children die at named points, and nothing that was acknowledged is lost."""
