"""Before a run on a cluster: our settings in verl's words, estimates on paper, and the start.

`translate` makes verl's settings, `flags` and `refusals` read what follows `--`, `memory` and
`scale` estimate, and `start` launches.
"""
