"""Shows how Tandem behaves on a cluster: one module for each name of run.sh."""
