FROM localhost/test/base AS build
WORKDIR /go/src
COPY go.mod main.go ./
RUN cat main.go go.mod > /go/server && chmod 755 /go/server

FROM scratch
COPY --from=build /go/server /server
ENTRYPOINT ["/server"]
