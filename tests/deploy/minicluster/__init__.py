"""A node and a Job controller for tests: runs rendered manifests with runc on this machine."""
