"""Files to run raffed on a Ray cluster: README.md says how. `raffed submit` reads runtime_env.yaml;
nothing else is imported.
"""
