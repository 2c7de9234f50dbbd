FROM localhost/test/base
RUN mkdir /many && for i in $(seq 1 300); do echo $i > /many/file-$i; done
RUN rm /many/file-1*
