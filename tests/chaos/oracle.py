# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What must be true of every extent, told from nothing but what clients do.

It is a bound, not a copy of the daemon: it says what may be handed out and what must be on the books, and leaves to the daemon
when. A process, a forked relative and a message in flight are holders; each has references by name, as in harness.holder.
"""

import dataclasses


class Broken(AssertionError):
    """The daemon did what it must never do."""


@dataclasses.dataclass(eq=False)
class Extent:
    inode: tuple
    bytes: int
    uid: int  # whose quota it counts in
    service: str  # whom alone it may serve again
    pattern: int = 0  # what its holders see in every byte
    spoilt: str = ""  # why nobody may get it any more
    has_holes: bool = False  # punched: its holders may see anything, or nothing
    is_stained: bool = False  # written to by way of a pin of its own service
    unlocked_in: int = -1  # the daemon's life in which a holder gave up the lock; its successor may forget it
    is_lost: bool = False  # the daemon died before it could keep it: it need not be on the books
    left_in: int = -1  # the daemon's life in which the grant's description was gone; -1: it is alive

    def is_watched(self):
        return not self.spoilt and not self.is_lost and self.unlocked_in < 0 and self.left_in < 0

    def is_legible(self):
        return not (self.has_holes or self.is_stained)


@dataclasses.dataclass(eq=False)
class Reference:
    extent: Extent
    is_grant: bool  # of the grant's own description, which the lock tells of; or of one that a holder opened
    has_fd: bool = True
    has_mapping: bool = False


class Oracle:
    def __init__(self):
        self.extents = {}  # by inode, all that were ever granted
        self.holders = {}  # {holder: {name: Reference}}
        self.pins = {}  # {holder: [Extent]}: at most these
        self.life = 0  # of the daemon

    # What the daemon does

    def granted(self, holder, service, uid, names, extents, size_bytes):
        """One request was granted."""
        if [extent.bytes for extent in extents] != size_bytes:
            raise Broken(f"asked for {size_bytes}, got {extents}")
        for name, got in zip(names, extents, strict=True):
            extent = self.extents.get(got.inode)
            if extent is None:
                extent = self.extents[got.inode] = Extent(got.inode, got.bytes, uid, service)
            else:
                self._check_reuse(extent, service)
                extent.uid, extent.bytes = uid, got.bytes
                extent.has_holes = extent.is_lost = False
                extent.left_in = extent.unlocked_in = -1
            self.holders.setdefault(holder, {})[name] = Reference(extent, is_grant=True)

    def _check_reuse(self, extent, service):
        if self._references(extent):
            raise Broken(f"{extent} was given to {service} while others have it")
        if extent.spoilt:
            raise Broken(f"{extent} was given to {service} although it was spoilt: {extent.spoilt}")
        if extent.service != service:
            raise Broken(f"{extent} was given to another service, {service}")

    def restarted(self, kept):
        """@kept: the inodes that the successor was given; None: all."""
        self.life += 1
        for extent in self.extents.values():
            if kept is not None and extent.inode not in kept:
                extent.is_lost = True

    # What holders do

    def named(self, holder):
        return self.holders.get(holder, {})

    def held_bytes(self):
        return sum(extent.bytes for extent in self.extents.values() if self._references(extent))

    def copied(self, holder, name, other, other_name, is_grant=None):
        """The same description in other hands, or another one (is_grant=False)."""
        source = self.holders[holder][name]
        is_grant = source.is_grant if is_grant is None else is_grant
        self.holders.setdefault(other, {})[other_name] = Reference(source.extent, is_grant)

    def received(self, flight, name, holder, new_name):
        self.holders.setdefault(holder, {})[new_name] = self.holders.pop(flight)[name]

    def forked(self, holder, relative):
        self.holders[relative] = {name: dataclasses.replace(held) for name, held in self.named(holder).items()}
        self.pins[relative] = list(self.pins.get(holder, []))

    def closed(self, holder, name):
        self._let_go(holder, name, "has_fd")

    def unmapped(self, holder, name):
        self._let_go(holder, name, "has_mapping")

    def _let_go(self, holder, name, what):
        held = self.holders[holder][name]
        setattr(held, what, False)
        if not held.has_fd and not held.has_mapping:
            del self.holders[holder][name]
            self._note_end(held.extent)

    def _note_end(self, extent):
        if extent.left_in < 0 and not any(held.is_grant for held in self._references(extent)):
            extent.left_in = self.life

    def dropped(self, holder, name):
        self._note_end(self.holders[holder].pop(name).extent)

    def ended(self, holder):
        for name in list(self.named(holder)):
            self.dropped(holder, name)
        self.holders.pop(holder, None)
        self.pins.pop(holder, None)

    def pinned(self, holder, name):
        self.pins.setdefault(holder, []).append(self.holders[holder][name].extent)

    def spoil(self, extent, why):
        extent.spoilt = extent.spoilt or why

    def spoil_all_granted(self, why):
        for extent in self.extents.values():
            if extent.left_in < 0:
                self.spoil(extent, why)

    # What must be so

    def _references(self, extent):
        return [held for references in self.holders.values() for held in references.values() if held.extent is extent]

    def _is_known(self, extent):
        return not extent.is_lost and not 0 <= extent.unlocked_in < self.life

    def on_the_books(self):
        """Inodes that must be shown as granted now: nothing overrules the lock. Without it doubtful memory is given up."""
        return {
            extent.inode
            for extent in self.extents.values()
            if extent.left_in < 0 and self._is_known(extent) and not (extent.unlocked_in >= 0 and extent.spoilt)
        }

    def may_be_on_the_books(self):
        """Inodes that may be shown as granted for good."""
        pinned = {extent.inode for extents in self.pins.values() for extent in extents}
        return pinned | {held.extent.inode for references in self.holders.values() for held in references.values()}

    def charged_bytes(self, uid):
        """What a user must be charged for at least: all that was granted and is still held, however it was opened."""
        return sum(
            extent.bytes
            for extent in self.extents.values()
            if extent.uid == uid and not extent.is_lost and (extent.left_in < 0 or self._references(extent))
        )
