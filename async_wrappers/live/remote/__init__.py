"""Workers on another machine: the wire, the server with the policies, and the transport on the environment's side."""
