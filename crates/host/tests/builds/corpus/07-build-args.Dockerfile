# build-arg: VERSION=1.2.3
# build-arg: UNUSED=x
FROM localhost/test/base
ARG VERSION=0.0.0
ARG OTHER=default
ENV VERSION=$VERSION
RUN echo "$VERSION $OTHER" > /version
