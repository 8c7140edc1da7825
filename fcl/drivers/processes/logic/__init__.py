"""The decision logic of the ``processes`` driver, as a pure state machine.

``machine`` contains the logic, and ``protocol`` its events (input) and instructions (output).

The shell, that is the supervisor, turns messages, deaths and decisions into events, and carries out the
instructions that the logic returns. The logic itself never waits, measures time or touches data.

A run is a sequence of stages (``Stage``), each a list of parts; the next stage begins when all parts of
the present one are done. Parts are dealt to writers as tasks. A task is complete when its Done arrives.
The task of a dead writer is dealt again and its extent is free again: the shell reports a death only
after reaping.

The trainer does no tasks. It receives numbered orders. Its answers name the order that they answer, and a
message that it sent before it saw a later order is out of date. An absent trainer gets no orders: its
successor gets one Restore, between passes, with the anchor and all extents that belong to the trainer.

The logic relies on these rules of the shell and the trainer:

- events of a child arrive in the order in which the child sent them, and never from a former incarnation;
- the trainer handles orders one by one; before it sends TrainerIdle, it answers MakeRoom and DropAll by
  Freed, SendAnchor and Restore by AnchorTaken; and it sends TrainerIdle after *each* order that leaves it
  without work;
- an empty extent that the trainer holds is counted in ``spare`` of Freed, or freed.
"""
