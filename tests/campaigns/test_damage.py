"""Damaged files are refused by name, or hold what they held; here a few of each."""

import pytest

from tests.campaigns.damage import FORMATS, Patient, flips, swaps, truncations

FLIPS = 12


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused(name, tmp_path):
    patient = Patient(name, tmp_path)
    found = patient.each(flips(patient, FLIPS, seed=0))
    found += patient.each(truncations(patient, 3))
    found += patient.each(swaps(patient, tmp_path))
    assert set(found) <= {"refused", "same"}, found
    assert found["refused"]
    assert patient.verdict() == "same"
