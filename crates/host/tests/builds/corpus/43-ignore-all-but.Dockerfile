# ignore: *
# ignore: !app
# ignore: app/sub
FROM localhost/test/base
COPY . /all/
