def worded(text: str) -> str:
    return text
