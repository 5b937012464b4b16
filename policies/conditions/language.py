"""The language of a text, by its script and its most common words; small, and honest about what it does not know.

The script with the most letters decides (a sign of Chinese, Japanese or Korean counts as five letters: it stands for some three, and
foreign terms among them are often written in Latin letters).
Within the Latin script, each language scores the words of its list that occur, a word on n lists 1/n each, and half a point for a letter
that is its own. The best wins; where none scores, or two score alike, the language is unknown: "". A script with one language on our list
is taken for it, so Bulgarian reads as Russian.

Fenced code is left out: its keywords are English whatever its author speaks.
"""

# ruff: noqa: RUF001 (letters of other languages are meant)

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

LETTERS = 2_000
"""Characters that are looked at, shared evenly between the texts."""

# First code point of a block of letters, one past its last, and the script.
_BLOCKS = (
    (0x41, 0x5B, "latin"),
    (0x61, 0x7B, "latin"),
    (0xC0, 0x250, "latin"),
    (0x370, 0x400, "el"),
    (0x400, 0x530, "cyrillic"),
    (0x590, 0x600, "he"),
    (0x600, 0x700, "arabic"),
    (0x900, 0x980, "hi"),
    (0xE00, 0xE80, "th"),
    (0x1100, 0x1200, "ko"),
    (0x1E00, 0x1F00, "latin"),
    (0x1F00, 0x2000, "el"),
    (0x3040, 0x3100, "kana"),
    (0x3400, 0x4DC0, "han"),
    (0x4E00, 0xA000, "han"),
    (0xAC00, 0xD7B0, "ko"),
)
_STARTS = tuple(first for first, _, _ in _BLOCKS)
_DENSE = frozenset({"han", "kana", "ko"})

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "en": """the and of to in is it that for with was are this be on as have from not you what how why which who when where can could
            should would will do does did i my me we our your they their there please write explain give make tell show find an at by or if
            into than then these those has had been but about after all also any some summarize translate list create help""",
        "de": """der die das und ist in zu den von mit ein eine einen einem einer nicht auf für im dem des sich auch es an als wie was warum
            wer wo wann welche welcher welches kann können soll sollte wird werden ich du wir ihr sie mein meine dein bitte schreibe schreib
            erkläre gib mach zeige finde aus bei nach oder wenn dass aber über nur noch hat haben sind war zum zur vom übersetze hilf""",
        "fr": """le la les et est de des du un une en que qui dans pour pas sur au aux avec ce cette ces il elle ils nous vous je tu mon ma
            mes ton ta votre sont été être avoir ont plus par ne se où quoi quel quelle comment pourquoi quand peux peut s'il plaît écris
            écrire explique donne fais montre trouve traduis mais ou donc comme leur y à l d c qu j n""",
        "es": """el la los las y es de del un una en que por para no con su se lo como más pero sus le ya o este esta estos qué quién cómo
            cuándo dónde cuál porque puede puedes yo tú mi mis tu ella ellos nosotros son fue ser está están hay muy también escribe explica
            dame haz muestra encuentra traduce favor al me te sin sobre entre cuando""",
        "it": """il lo la i gli le e è di del della dei delle un una uno in che per non con si come più ma su al alla nel nella sono era
            essere ha hanno io tu noi voi loro mio mia tuo questo questa questi chi cosa quale quando dove perché puoi può scrivi spiega
            dammi fai mostra trova traduci favore anche da dal dalla o se ci mi ti l""",
        "pt": """o a os as e é de do da dos das um uma em no na nos nas que por para não com se como mais mas foi ser são está estão eu tu
            você nós ele ela eles meu minha seu sua este esta isto isso quem qual quando onde porque pode podes escreva escreve explique dê
            faça mostre encontre traduza favor também ao à pelo pela ou muito""",
        "nl": """de het een en is van in op te dat die niet met voor zijn er aan ook als maar om hij zij wij ik je jij u mijn jouw dit deze
            wat hoe waarom wie waar wanneer welke kan kunnen moet zal wordt worden heeft hebben was naar bij uit over door of dan nog wel
            geen schrijf leg geef maak toon vind vertaal alsjeblieft""",
        "sv": """och att det som en ett är i på för med av den till inte har de om var jag du vi ni han hon min mitt din detta denna vad hur
            varför vem när vilken kan ska skall blir från eller men så också finns skriv förklara ge gör visa hitta översätt snälla under
            efter utan mellan""",
        "pl": """i w z na do nie się jest to że o jak co dla po od za przez przy ale czy lub oraz ten ta te tego tej są był być może mogę ja
            ty my wy on ona oni mój moja twój kto kiedy gdzie dlaczego który która które proszę napisz wyjaśnij podaj zrób pokaż znajdź
            przetłumacz bardzo tylko już""",
        "tr": """ve bir bu da de için ile ne nasıl neden niçin kim nerede zaman hangi mi mı mu mü değil var yok ben sen biz siz onlar benim
            senin çok daha gibi kadar ama veya ya olan olarak en her şey lütfen yaz açıkla ver yap göster bul çevir misin mısın""",
    }
)
_OWN_LETTERS: Mapping[str, str] = MappingProxyType(
    {"de": "ß", "es": "ñ¿¡", "pt": "ãõ", "pl": "łąęśźżń", "tr": "ğış", "sv": "å", "fr": "œêù"}
)
_WORD = re.compile(r"[^\W\d_]+")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def _weights(lists: Mapping[str, Sequence[str]], one: float) -> Mapping[str, tuple[tuple[str, float], ...]]:
    holders: dict[str, list[str]] = defaultdict(list)
    for language, entries in lists.items():
        for entry in dict.fromkeys(entries):
            holders[entry].append(language)
    return MappingProxyType({entry: tuple((each, one / len(who)) for each in who) for entry, who in holders.items()})


_OF_WORD = _weights({language: re.findall(r"[^\W\d_]+", words) for language, words in _WORDS.items()}, 1.0)
_OF_LETTER = _weights({language: tuple(letters) for language, letters in _OWN_LETTERS.items()}, 0.5)

LANGUAGES = frozenset({*_WORDS, "ru", "uk", "ar", "fa", "zh", "ja", "ko", "el", "he", "hi", "th"})
"""What can be told, by ISO 639-1 code."""


def language(texts: Sequence[str]) -> str:
    """ISO 639-1 code of the language of these texts together; "" where it cannot be told."""
    share = max(200, LETTERS // max(1, len(texts)))
    text = _FENCE.sub(" ", "\n".join(each[:share] for each in texts)).lower()
    letters = Counter(text)
    scripts: Counter[str] = Counter()
    for letter, number in letters.items():
        script = _script(ord(letter))
        if script:
            scripts[script] += number * 5 if script in _DENSE else number
    if not scripts:
        return ""
    # Japanese is written in both, and Chinese never in kana.
    kana, both = scripts["kana"], scripts.pop("kana", 0) + scripts.pop("han", 0)
    scripts["ja" if kana * 10 >= both else "zh"] = both
    script = max(scripts, key=scripts.__getitem__)
    if script == "latin":
        return _latin(text, letters)
    if script == "cyrillic":
        return "uk" if sum(letters[each] for each in "іїєґ") > sum(letters[each] for each in "ыэъё") else "ru"
    if script == "arabic":
        return "fa" if sum(letters[each] for each in "پچژگ") else "ar"
    return script


def _script(code: int) -> str:
    block = bisect_right(_STARTS, code) - 1
    return _BLOCKS[block][2] if block >= 0 and code < _BLOCKS[block][1] else ""


def _latin(text: str, letters: Counter[str]) -> str:
    scores: dict[str, float] = defaultdict(float)
    for found, weights in ((Counter(_WORD.findall(text)), _OF_WORD), (letters, _OF_LETTER)):
        for entry, number in found.items():
            for each, weight in weights.get(entry, ()):
                scores[each] += number * weight
    first, second, *_ = [*sorted(((score, each) for each, score in scores.items()), reverse=True), (0.0, ""), (0.0, "")]
    # Sums of thirds and halves: what is alike but for rounding is alike.
    return first[1] if first[0] - second[0] > 1e-9 else ""
