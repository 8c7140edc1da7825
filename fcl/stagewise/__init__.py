"""Ridge models by stages: blocks of features that are generated, fitted and forgotten.

``links``      losses of several classes or targets, their residuals, the projection onto the simplex
``targets``    classes as codes, or numbers, for each row
``settings``   the options of a training
``blocks``     the features of a block on a tile of rows
``sums``       Gram matrix and gradient of a block, streamed over the tiles
``steps``      from these sums to a step: pure functions
``learner``    visits of the blocks, validation, the best model
``certify``    the gap to the joint optimum over all blocks
``plan``       the memory budget
``model``      the trained model, and its file
``checkpoint``  the state of a job on disk
``events``     what a training reports
``file``       the model file
``job``        validated rows, targets and family
``train``      from a data set to a model
"""
