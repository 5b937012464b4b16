"""Which answers are listened to, and for what: to be stored, as the operator wants it, or to be looked at once and forgotten.

Looked at are answers of plans that a policy chose, to chats and completions, of callers who did not say `learn: false`. A judge is asked
about a share of them: those whose ids, hashed with a secret, say so, so that nobody can ask for it or avoid it.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from gateway.config.schema import Config
from gateway.serving.call import Examined, Receipt, Words
from gateway.serving.errand import Errand
from gateway.serving.verifying import LONGEST_PROMPT

CHAT: Final = "/v1/chat/completions"
JUDGE: Final = "judge"
VERIFIER: Final = "verifier"

_PATHS: Final = frozenset((CHAT, "/v1/completions"))


class Hearing:
    """secret: of the hash by which decisions are sampled; None: one of this process's own."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._key = hashlib.blake2b(secret or secrets.token_bytes(32), digest_size=32, person=b"sampling").digest()

    def words(self, config: Config, receipt: Receipt, errand: Errand) -> Words | None:
        """What is to be held of a request whose answer is about to come; None: nothing."""
        contents = config.storage.contents
        kept = contents.max_bytes if contents.enabled else None
        examined = self._examined(config, receipt, errand)
        if kept is None and examined is None:
            return None
        prompt = 0 if kept is None else kept + 1
        if examined is not None and examined.judges:
            prompt = max(prompt, LONGEST_PROMPT + 1)
        return Words(
            most=max(kept or 0, 0 if examined is None else examined.most),
            prompt=bytes(errand.prompt[:prompt]),
            kept=kept,
            examined=examined,
        )

    def sampled(self, decision_id: str, purpose: str, share: float) -> bool:
        """Whether the decision is one of that share."""
        if share in (0.0, 1.0):
            return share == 1.0
        digest = hashlib.blake2b(decision_id.encode(), digest_size=8, key=self._key, person=purpose.encode()).digest()
        return (int.from_bytes(digest, "big") >> 11) / 2**53 < share

    def _examined(self, config: Config, receipt: Receipt, errand: Errand) -> Examined | None:
        choice = errand.choice
        if choice is None or not receipt.learn or errand.call.path not in _PATHS or not config.storage.url:
            return None
        learning = config.learning
        if not learning.signals and learning.verifier is None and learning.judge is None:
            return None
        judges = {}
        for name, asked_of in ((VERIFIER, learning.verifier), (JUDGE, learning.judge)):
            if asked_of is not None and self.sampled(receipt.decision_id, name, asked_of.share):
                judges[name] = asked_of.share
        if not learning.signals and not judges:
            return None
        fields = errand.fields
        asked = [most for most in (fields.max_completion_tokens, fields.max_tokens) if most is not None and most > 0]
        bounds = [*asked, *([] if choice.most is None else [choice.most])]
        return Examined(
            response_format=bytes(fields.response_format),
            tools=bytes(fields.tools),
            # Not the plan's own budget, nor the model's context. A completion is short unless the caller asks for more.
            limited=min(bounds) != choice.plan.budget_tokens if bounds else errand.call.path != CHAT,
            judges=judges,
            most=learning.max_answer_bytes,
        )
