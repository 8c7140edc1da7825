"""The report of a model: one HTML page with its certificate, training, scores and features.

``contract``    what a section gets and returns
``measured``    what the report measures on rows of data: predictions, features, letters
``outputs``     the same for several outputs
``predictions`` sums over the predictions, and the most extreme rows
``cells``       sums over rows by margin, in bounded memory
``groups``      names and numbers of groups of rows
``columns``     statistics of the columns of features
``scores``      numbers of predictions against targets
``letters``     contributions and effects of letters
``sections``    the sections of the page, in order
``figures``     pictures as SVG (matplotlib)
``logo``        letters as shapes
``page``        the HTML page (jinja2)
``make``        from a model file to the page
``export``      pictures and numbers as files
``meme``        patterns as motifs in MEME format

matplotlib and jinja2 are the extra ``report``; nothing imports them before a page is made.
"""
