"""Why a layout takes as long as it does."""
