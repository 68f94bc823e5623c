"""Other projects' policies and robots: each file adapts one project's, and imports its library when it is made.

* `openpi`: a policy that asks a server of openpi's.
* `lerobot`: a policy of LeRobot's, for ``python -m async_wrappers serve`` in LeRobot's environment, and its robots.
* `rtgym`: an interface of rtgym's.
"""
