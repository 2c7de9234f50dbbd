FROM localhost/test/base
COPY app /srv/app
CMD ["/srv/app/start.sh"]
