"""Who does what next: the decision logic of the ``processes`` driver, as a pure state machine.

``machine`` has the logic, and ``protocol`` the events in and the instructions out.

The shell turns what happens (messages, deaths, decisions) into events and carries out the
instructions that come back. Nothing here waits, measures time or touches a byte.

A run is a sequence of stages (``STAGES``), each a list of parts; the next begins when all parts of the
last are done. Parts are dealt to writers as tasks. A task counts when its Done arrived: that of a dead
writer is dealt again, and its extent is free again, for the shell reports a death after reaping.

The trainer is no worker. It gets orders, numbered; its answers name the order they answer, and what it
said before it saw a later order is out of date. Orders for a trainer that is absent are not given:
its successor gets one Restore with the anchor and all extents that it holds, between passes.

Rules of the shell and the trainer that the logic relies on:

- each event of a child comes in the order the child sent it, and none of a former incarnation;
- the trainer handles orders one by one, answers MakeRoom and DropAll by Freed, SendAnchor and Restore
  by AnchorTaken, before it says TrainerIdle; and says TrainerIdle after *each* order that leaves it
  without work;
- an empty extent that the trainer holds is counted in ``spare`` of Freed, or freed.
"""
