"""Manifests laid out anew for those who read them, as a commit that changes nothing else."""
