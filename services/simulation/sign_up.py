"""Accounts for the simulated labelers: each signs up by the label tool's invitation, as a person would."""

from __future__ import annotations

import httpx

from services.simulation.annotator import LabelerError


def sign_up(url: str, admin_token: str, email: str, password: str) -> str:
    """The API token of the account of this address, made by invitation if there is none yet.

    Raises LabelerError when the tool refuses the account, or the password of one that exists.
    """
    with httpx.Client(base_url=url.rstrip("/"), timeout=60, trust_env=False) as admin:
        answer = admin.get("/api/invite", headers={"Authorization": f"Token {admin_token}"})
        if not answer.is_success:
            raise LabelerError(f"the label tool gives no invitation, {answer.status_code}: {answer.text[:400]}")
        invitation = str(answer.json()["token"])
    for page in (f"/user/signup/?token={invitation}", "/user/login/"):
        with httpx.Client(base_url=url.rstrip("/"), timeout=60, trust_env=False) as browser:
            browser.get(page)
            form = {"email": email, "password": password, "csrfmiddlewaretoken": browser.cookies.get("csrftoken", "")}
            browser.post(page, data=form, headers={"Referer": url})
            answer = browser.get("/api/current-user/token")
            if answer.is_success:
                return str(answer.json()["token"])
    raise LabelerError(f"the label tool neither signs {email} up nor in, last with {answer.status_code}")
