# Two stages: the toolchain builds, and what runs is the binary, the system's certificates and nothing else of it.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
# bundled SQLite and ring need a C compiler
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY Cargo.toml Cargo.lock ./
COPY src ./src
COPY sql ./sql
COPY benches ./benches
COPY outbill.example.yaml ./
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin outbill && cp target/release/outbill /outbill

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin outbill
COPY --from=build /outbill /usr/local/bin/outbill
# Numeric, so that Kubernetes can see that it is not root.
USER 10001:10001
# The configuration is mounted here; secrets come as `${NAME}` or `*_file`.
ENV OUTBILL_CONFIG=/etc/outbill/outbill.yaml
# Outbill stops in order on SIGTERM, also as process 1.
STOPSIGNAL SIGTERM
ENTRYPOINT ["outbill"]
CMD ["run"]
