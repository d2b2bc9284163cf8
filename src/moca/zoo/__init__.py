"""The zoo: trained policies with their scores, listed, played and filmed."""
