FROM localhost/test/base
ENTRYPOINT exec top -b
CMD echo "never $HOME"
