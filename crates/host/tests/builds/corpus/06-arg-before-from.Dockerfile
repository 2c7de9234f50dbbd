ARG NAME=test
ARG TAG
FROM localhost/${NAME}/base:${TAG:-latest}
ARG NAME
ARG TAG=none
RUN echo "$NAME $TAG" > /args
LABEL name=$NAME tag="${TAG}"
