"""What others need to test their backends and wrappers: suites to subclass, for pytest."""
