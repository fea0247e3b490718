"""The rules of an index, as plainly as they can be said: one dictionary, one change after the other."""

from dataclasses import dataclass, field

from ingest.index_rules import is_bare


@dataclass
class Held:
    version_us: int
    pieces: list = field(default_factory=list)  # of Passage; none: removed


@dataclass
class Model:
    posts: dict = field(default_factory=dict)
    accounts: dict = field(default_factory=dict)  # account -> (state, version)

    def apply(self, passages, removals, accounts):
        for change in accounts:
            self._change(change)
        versions: dict = {}
        for passage in passages:  # as of a batch: what each post ends as is what counts, for reposts too
            versions.setdefault((passage.post.id, id(passage.post)), []).append(passage)
        before = set(self.posts)
        ended: dict = {}
        for (post_id, _), pieces in versions.items():
            self._take_in(post_id, pieces, ended)
        for removal in removals:
            self._remove(removal, ended)
        self.posts |= ended
        for post_id, held in ended.items():  # reposts of what is removed, in the batch or before it
            if held.pieces and self._is_removed(held.pieces[0].post.repost_of):
                self.posts[post_id] = Held(held.version_us)
        for post_id in ended:
            if not self.posts[post_id].pieces:
                self._take_reposts(post_id)
        assert before <= set(self.posts)

    def _change(self, change):
        state, version_us = self.accounts.get(change.account, ("active", -1))
        if state == "deleted" or (change.state != "deleted" and version_us > change.version_us):
            return
        self.accounts[change.account] = (change.state, change.version_us)
        if change.state == "deleted":
            gone = [
                i for i, held in self.posts.items() if held.pieces and held.pieces[0].post.account == change.account
            ]
            for post_id in gone:
                self.posts[post_id].pieces = []
            for post_id in gone:
                self._take_reposts(post_id)

    def _take_in(self, post_id, pieces, ended):
        post = pieces[0].post
        held = ended.get(post_id) or self.posts.get(post_id)
        if self.accounts.get(post.account, ("",))[0] == "deleted":
            if held is None or held.pieces or held.version_us < post.version_us:
                ended[post_id] = Held(max(post.version_us, held.version_us if held else post.version_us))
        elif held is None or held.version_us < post.version_us or (held.pieces and held.version_us == post.version_us):
            ended[post_id] = Held(post.version_us, pieces)

    def _remove(self, removal, ended):
        held = ended.get(removal.post_id) or self.posts.get(removal.post_id) or Held(removal.version_us)
        if not (removal.if_newer and held.pieces and held.version_us > removal.version_us):
            ended[removal.post_id] = Held(max(held.version_us, removal.version_us))

    def _take_reposts(self, post_id):
        for held in self.posts.values():
            if held.pieces and held.pieces[0].post.repost_of == post_id:
                held.pieces = []

    def _is_removed(self, post_id):
        return post_id in self.posts and not self.posts[post_id].pieces

    def _is_hidden(self, post_id):
        held = self.posts.get(post_id)
        return bool(held and held.pieces) and self.accounts.get(held.pieces[0].post.account, ("",))[0] == "hidden"

    def found(self):
        """(post id, number, text) of every piece that can be found."""
        return {
            (post_id, piece.number, piece.text)
            for post_id, held in self.posts.items()
            if held.pieces and not self._is_hidden(post_id) and not self._is_hidden(held.pieces[0].post.repost_of)
            for piece in held.pieces
            if not is_bare(piece)
        }

    def versions(self):
        return {post_id: (held.version_us, bool(held.pieces)) for post_id, held in self.posts.items()}
