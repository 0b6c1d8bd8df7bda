# The service, with the local model and what agents behind HTTP and ACP need, as an unprivileged user.
FROM python:3.13-slim-bookworm AS build

WORKDIR /src
RUN python -m venv /opt/control-room
COPY requirements.lock requirements-local.lock ./
RUN /opt/control-room/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && /opt/control-room/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements-local.lock
COPY pyproject.toml README.md ./
COPY app app
COPY recipes recipes
COPY migrations migrations
RUN /opt/control-room/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim-bookworm

RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin control-room \
    && install -d -o control-room -g control-room -m 0700 /project
COPY --from=build /opt/control-room /opt/control-room
ENV PATH=/opt/control-room/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CONTROL_ROOM_PROJECT=/project \
    CONTROL_ROOM_HOST=0.0.0.0 \
    CONTROL_ROOM_PORT=8000
USER control-room
WORKDIR /project
VOLUME ["/project"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["control-room", "serve"]
