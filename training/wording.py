"""Paraphrases around the product's grammar, so that the model does not depend on one wording."""

from harness.questions.needles import INSTRUCTIONS, Language

OTHER_INSTRUCTIONS: dict[Language, tuple[str, ...]] = {
    "en": (
        "Answer every question with its code only, one per line, as Qn=CODE.",
        "Reply with one line per question in the form Qn=CODE and nothing else.",
        "Give each code on its own line, for example Q1=MEM-000000.",
        "Output only lines such as Q1=XXX-123456, one per question, in order.",
        "For each question write Qn= followed by the exact code.",
        "Return the codes in question order as Qn=CODE lines.",
        "Use the records above. Answer in the format Q1=CODE, then Q2=CODE, and so on.",
    ),
    "ja": (
        "各設問のCODEを、Qn=CODEの形で1行ずつ出力する。",
        "答えは Qn=CODE の行だけにしてください。",
        "上の記録を見て、設問番号と完全なCODEを答えてください。",
    ),
}

HEADINGS: tuple[str, ...] = (
    "Read the records below and remember the codes.",
    "The following is a long list of records.",
    "Background records:",
    "Records follow. Some of them hold a code.",
    "Study this log, then answer the questions at the end.",
    "BEGIN RECORDS",
    "次の記録を読み、最後の設問に答えてください。",
)
QUESTION_HEADINGS: tuple[str, ...] = (
    "Questions:",
    "Now answer:",
    "QUESTIONS",
    "Answer the following questions.",
    "End of records. Questions follow.",
    "設問",
)
AGAIN: tuple[str, ...] = (
    "Answer again.",
    "Once more:",
    "More questions about the same records.",
    "もう一度答えてください。",
)
SYSTEM_MESSAGES: tuple[str, ...] = (
    "You are a helpful assistant.",
    "Answer exactly.",
    "You retrieve codes from documents.",
    "Be brief.",
    "あなたは正確なアシスタントです。",
)


def instructions(language: Language) -> tuple[str, ...]:
    """The product's instruction first, then its paraphrases."""
    return (INSTRUCTIONS[language], *OTHER_INSTRUCTIONS[language])
