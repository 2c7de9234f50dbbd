FROM localhost/test/base
RUN echo $HOME > /home-of-root
USER ada
RUN echo $HOME > /tmp/home-of-ada
