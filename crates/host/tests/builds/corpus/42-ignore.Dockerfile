# ignore: *.json
# ignore: !package.json
# ignore: app/sub
# ignore: **/*.py
# ignore: links
FROM localhost/test/base
COPY . /all/
