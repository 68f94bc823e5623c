"""Hosts: actors that play environments for a learner elsewhere.

`played_block`: what a host sends, whole blocks of transitions, and how a learner replays them. `host`: a host.
`engine`: the interface of the engines that run hosts, `local_hosts` (in this process), `host_processes` and `on_ray`.
The loops of a learner, in rounds and free running, are in `agents.play.hosts.host_rounds`.
"""
