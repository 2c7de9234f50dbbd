FROM --platform=linux/amd64 localhost/test/base
ARG TARGETOS
ARG TARGETARCH
RUN echo "$TARGETOS/$TARGETARCH" > /platform
