# The image holds one static binary and nothing else: no shell, no /tmp, no certificates.
#
#   docker build -t etcdinit --build-arg VERSION=v1.0.0 .
#
# BUILDER is any image with a shell and the Go version that go.mod names, or a newer one.
# GOPROXY, GOFLAGS and GONOSUMDB reach the Go command: with GOPROXY=file:///modules and a
# builder that holds the modules there, the build needs no network (e2e/docker does this).
ARG BUILDER=golang:1.26
FROM ${BUILDER} AS build
ARG GOPROXY
ARG GOFLAGS
ARG GONOSUMDB
ARG VERSION=unknown
ARG REVISION=unknown
ENV CGO_ENABLED=0 GOWORK=off
WORKDIR /src
# The modules first: they change less often than the sources.
COPY go.mod go.sum ./
RUN ["go", "mod", "download"]
COPY . .
RUN go build -trimpath -buildvcs=false -tags grpcnotrace,nethttpomithttp2,urfave_cli_no_docs -ldflags "-s -w -X main.version=${VERSION} -X main.revision=${REVISION}" -o /out/etcdinit ./cmd/etcdinit

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="etcdinit" \
      org.opencontainers.image.description="Gives an etcd member its place in a cluster before etcd starts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://github.com/etcdinit/etcdinit" \
      org.opencontainers.image.source="https://github.com/etcdinit/etcdinit" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/etcdinit /etcdinit
USER 65532:65532
ENTRYPOINT ["/etcdinit"]
