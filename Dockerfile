# The base image is named by the digest of its index, for every architecture. To take a newer one:
#     docker buildx imagetools inspect python:3.13-slim-bookworm
#
# The service, with the local model and what agents behind HTTP and ACP need, as an unprivileged user.
FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e AS build

WORKDIR /src
RUN python -m venv /opt/control-room
# requirements-scale.lock adds what an installation on several machines needs.
ARG REQUIREMENTS=requirements.lock
COPY requirements.lock requirements-scale.lock requirements-local.lock ./
RUN /opt/control-room/bin/pip install --no-cache-dir --require-hashes -r ${REQUIREMENTS} \
    && /opt/control-room/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements-local.lock
COPY pyproject.toml LICENSE README.md ./
COPY app app
COPY recipes recipes
COPY migrations migrations
COPY .control-room/example .control-room/example
COPY .control-room/example-code .control-room/example-code
RUN /opt/control-room/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e

RUN useradd --uid 10001 --home-dir /var/lib/control-room --shell /usr/sbin/nologin control-room \
    && install -d -o control-room -g control-room -m 0700 /project /var/lib/control-room
COPY --from=build /opt/control-room /opt/control-room
ENV PATH=/opt/control-room/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/control-room \
    CONTROL_ROOM_PROJECT=/project \
    CONTROL_ROOM_HOST=0.0.0.0 \
    CONTROL_ROOM_PORT=8000
USER control-room
WORKDIR /project
VOLUME ["/project", "/var/lib/control-room"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["control-room", "serve"]
