"""The rules of a federation beside its method: what each one computes, and what it refuses."""
