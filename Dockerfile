# One image for all hosts: what learns, what plays, a policy server, the nodes of a Ray cluster.
#
#   docker build -t async_wrappers .                        the CUDA build of PyTorch; for the CPU build add
#       --build-arg INDEX=https://download.pytorch.org/whl/cpu
#   docker run --shm-size 2g async_wrappers                 the README's first command: the main job
#   docker run --shm-size 2g async_wrappers .venv/bin/python -m pytest -n 3     its second one: the tests
#
# docs/how_to/hosts.md has the rest.
FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends g++ git && rm -rf /var/lib/apt/lists/*
WORKDIR /async_wrappers
COPY . .
ARG INDEX=
RUN python3 -m venv .venv && .venv/bin/python -m pip install --no-cache-dir -e '.[dev,ray]' -c constraints.txt ${INDEX:+--extra-index-url $INDEX}
CMD [".venv/bin/python", "train.py"]
