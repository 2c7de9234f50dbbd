FROM localhost/test/base
RUN echo one \
    # a comment between

    && echo two > /two \
    && echo three > /three
