"""A ROS 2 arm as a machine of async_wrappers: it publishes JointState and takes speeds. Copy it into your project."""

import threading

import numpy as np
from gymnasium.spaces import Box


class Ros2Machine:
    """The arm as a machine; `observe` never waits for a message."""

    fps = 100
    timed_sensors = {"joints": slice(0, 12)}  # numbers of the observation
    noop_action = np.zeros(6, np.float32)  # the arm is driven by speeds: zeros hold it
    observation_space = Box(-np.inf, np.inf, (12,), np.float32)
    action_space = Box(-1.0, 1.0, (6,), np.float32)

    def __init__(self, topic="/joint_states", commands="/velocity_controller/commands", patience=5.0):
        import rclpy
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64MultiArray

        rclpy.init()
        self.rclpy, self.command, self.patience = rclpy, Float64MultiArray, patience
        self.newest, self.heard = None, threading.Event()
        self.node = rclpy.create_node("async_wrappers")
        self.node.create_subscription(JointState, topic, self.hear, 1)  # only the newest reading counts
        self.publisher = self.node.create_publisher(Float64MultiArray, commands, 1)
        self.thread = threading.Thread(target=rclpy.spin, args=(self.node,), daemon=True)
        self.thread.start()

    def hear(self, message):
        """Keep the newest reading."""
        self.newest = message
        self.heard.set()

    def reset(self, *, seed=None, options=None):
        """Wait for the first reading."""
        if not self.heard.wait(self.patience):
            raise TimeoutError(f"no joint states within {self.patience} s: is the robot's driver running?")
        observation, *_, info = self.observe()
        return observation, {**info, "joints": list(self.newest.name)}

    def now(self):
        """Return the time by ROS's clock, which stamps messages, in seconds."""
        return self.node.get_clock().now().nanoseconds / 1e9

    def send(self, action):
        """Send the speeds, and return at once."""
        self.publisher.publish(self.command(data=action.tolist()))

    def observe(self):
        """Return the newest reading, with its stamp."""
        message = self.newest
        seen = np.concatenate([message.position, message.velocity]).astype(np.float32)
        stamp = message.header.stamp.sec + message.header.stamp.nanosec / 1e9
        return seen, 0.0, False, False, {"sensor_stamps": {"joints": stamp}}

    def close(self):
        """Bring the arm to rest."""
        if self.rclpy.ok():
            self.send(self.noop_action)
            self.node.destroy_node()
            self.rclpy.shutdown()
            self.thread.join(self.patience)
